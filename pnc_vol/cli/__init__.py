"""The command ``pnc-vol``: one module a verb.

    main      the entry point; says how to install what is missing
    app       the verbs, hung up
    show      safe text, one-line errors, exit codes
    cdl       CDL as ncdump prints it
    stored    headers and values straight from a classic file

Nothing heavy is imported before a verb needs it, so that ``pnc-vol --help`` is quick.
"""
