"""The vocabularies, a module for each theme. `xflow.generator.families` lists the families."""
