"""The sub-commands of ``tfs-proxy``: one module each, all with ``add_arguments`` and ``run``."""
