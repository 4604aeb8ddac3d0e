"""From a vocabulary to pairs of terms that agree: terms level by level, fingerprints, proposals."""
