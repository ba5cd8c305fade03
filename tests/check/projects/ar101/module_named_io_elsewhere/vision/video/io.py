class BytesIO:
    pass
