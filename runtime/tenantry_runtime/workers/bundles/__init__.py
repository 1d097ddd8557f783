"""The files of workers, and what they depend on, where isolates can have them."""
