"""One refresh: request, upstream, binding, plan, change detection, expectations, run; and its preview."""
