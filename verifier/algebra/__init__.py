"""Normal forms of specifications, and the identities by which they are simplified."""
