"""The Kafka protocol as bytes: messages, versions, frames and error codes.

`messages` declares each request and response once, `codec` compiles the declarations, `apis` is
the table of what is spoken, `frames` wraps it for the wire, `errors` holds the codes.
"""
