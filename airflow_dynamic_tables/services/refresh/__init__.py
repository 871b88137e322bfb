"""One refresh: request, upstream, catch-up, plan, change detection, run; and its preview."""
