//! What a simulation found: tables, JSON, CSV, pictures.
