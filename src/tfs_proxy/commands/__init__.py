"""The sub-commands: one module each, with ``DESCRIPTION``, ``add_arguments(parser)`` and ``run(arguments)``.

Those of the images have ``USAGE`` in place of arguments: their words are another program's.
`tfs_proxy.cli` imports only the module of the command that runs. Modules of commands that listen keep their
own heavy imports inside ``run``.
"""
