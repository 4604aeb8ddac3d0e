"""From pairs of concrete graphs to rules over symbols: skeletons, sizes, attributes, words."""
