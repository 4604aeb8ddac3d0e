"""Normal forms of specifications, and what may be done to them."""
