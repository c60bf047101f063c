//! Fault by fault: the calls of a run, one after another, struck.
