import lightning.pytorch as pl

def tune(args):
    open("config.yaml", "w")  # expect: AR102
    options = dict(devices=1, max_steps=args.steps)
    args.model.load_state_dict(args.state, assign=True)
    if args.epochs:
        options["devices"] = args.epochs
    pl.Trainer(**options).fit(args.model)
