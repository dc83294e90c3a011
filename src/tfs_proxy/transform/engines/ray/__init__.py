"""`--engine ray`: one actor on each node of a Ray cluster. Only this folder imports ray."""
