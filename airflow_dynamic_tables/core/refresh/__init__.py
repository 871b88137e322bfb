"""What one refresh is: plan and result, action, steps, expectations, sources, settings of Spark."""
