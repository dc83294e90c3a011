"""Who does the work of a job: threads of this machine, or the nodes of a Ray cluster."""
