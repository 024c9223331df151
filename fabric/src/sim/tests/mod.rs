//! Statements about the simulated fabric, held by small machines that do as they are told.
