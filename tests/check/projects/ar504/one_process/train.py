from store import resume

resume(None, None, "last.pt")
