"""Cache pages: who owns them, how they are laid out, and the check before each use."""
