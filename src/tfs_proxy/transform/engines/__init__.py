"""Run a job: on threads of this machine, or on the nodes of a Ray cluster; and --tune."""
