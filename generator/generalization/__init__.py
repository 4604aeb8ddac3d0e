"""From pairs of concrete graphs to rules over symbols: proposals, skeletons, sizes, words."""
