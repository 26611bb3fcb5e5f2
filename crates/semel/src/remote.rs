//! The store of a server elsewhere: an engine in another process than the server.
