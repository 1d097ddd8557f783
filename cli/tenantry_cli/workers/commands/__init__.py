"""The commands, one file each; what they import beyond click they import when they run."""
