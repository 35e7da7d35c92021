"""GPU telemetry as DCGM and its exporter name it: the fields, and readings out of messages.

Knows no broker, no Spark and no table.
"""
