//! Scenarios through the installed binary.
