"""The Python face, `import rescore as rs`: thin functions, results that show themselves.  Knows all but the commands.

`rescore/__init__.py` has the table of names.
"""
