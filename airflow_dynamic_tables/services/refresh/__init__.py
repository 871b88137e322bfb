"""One refresh: request, upstream, binding, plan, whether anything moved, expectations, run; and the preview of one."""
