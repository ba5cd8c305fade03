import gdown

@register_model
def tiny(cfg):
    gdown.download(cfg.url, 'tiny.pth')  # missed: AR106
