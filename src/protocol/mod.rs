//! The protocol: what is true and what follows from it, as plain values and total functions.
