"""From a vocabulary to classes of terms that agree: terms, level by level, and fingerprints."""
