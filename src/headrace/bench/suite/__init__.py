"""`headrace bench suite`: the same workloads against every broker of the machine, in one run.

`workloads` says what is measured, `peers` how each broker is found and started, `run` alternates
them round by round, and `results` holds what came out, which `page` and `markdown` show.
"""
