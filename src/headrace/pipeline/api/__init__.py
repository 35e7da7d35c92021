"""`headrace api`: questions about GPUs over HTTP, answered from the tables.

A process of its own beside the pipeline that writes them: it holds one version of the tables for
each answer, and knows neither Spark nor a broker.
"""
