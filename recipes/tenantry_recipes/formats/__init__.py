"""What cache and weight formats cost in right answers (`workerctl eval formats`)."""
