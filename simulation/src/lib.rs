//! The failover simulation harness: the same gateway and protocol as in production, over in-memory ports.
