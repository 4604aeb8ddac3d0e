"""What is enumerated together, by theme. `xflow.generator.families` lists the families."""
