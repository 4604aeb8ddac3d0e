"""Rules learned from models: what stands in a graph is searched for cheaper equals."""
