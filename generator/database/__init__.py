"""The database of rules: which are kept, their names, and the folder that holds them."""
