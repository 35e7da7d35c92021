"""Bytes of the protocols that Python speaks; the packets of MQTT are parsed in Rust."""
