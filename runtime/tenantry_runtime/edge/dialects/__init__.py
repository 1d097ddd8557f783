"""Ways to ask and to be answered: Workers AI's, and OpenAI's chat, completions and responses."""
