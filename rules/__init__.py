"""The committed rule database: text stanzas (`*.rules`) and their certificates."""
