//! What onceway is compared with.
//!
//! Made below.
