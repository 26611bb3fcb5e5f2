//! The order workflow that newcomers meet first, and the show around it.
