def total(parts):
    parts = parts.clone()
    parts *= 2
    return parts
