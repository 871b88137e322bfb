"""What one refresh is: plan and result, action, steps, expectations, sources and their states, settings of Spark."""
