"""One refresh: request, upstream, binding, plan, attempt, expectations, run; and the preview of one."""
