"""The serving stacks of models: their processes, sockets and folders."""
