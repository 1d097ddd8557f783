"""What a node does step by step: sequences, their schedule, the model's runs, the next token."""
