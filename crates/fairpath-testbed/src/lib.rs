//! Namespaces, links, traffic and captures as values that clean up after themselves.
