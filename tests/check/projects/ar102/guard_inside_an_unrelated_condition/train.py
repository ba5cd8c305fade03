import json
import world

def main(scores):
    world.start()
    if len(scores) > 1:
        scores = world.gather(scores)
        if not world.is_main():
            return
    with open("scores.json", "w") as file:  # expect: AR102
        json.dump(scores, file)

main([])
