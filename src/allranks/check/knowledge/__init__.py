"""What the names of libraries mean, as tables: TOML files that are read once.

A name is documented: ``torch.save``, whatever the program imports it as. ``*.save_pretrained`` is a method (or
attribute) of any receiver. ``user_names.toml`` has what programs call their own things.
"""
