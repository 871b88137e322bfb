"""One refresh: request, upstream, binding, plan, expectations, run."""
